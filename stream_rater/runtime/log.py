"""Logs: one structured line per event, readable on a terminal, JSON otherwise."""

import logging
import sys

import structlog

from stream_rater.contract.events import shown


def configure(level: str = "info") -> None:
    """Log to standard error. Tracebacks omit local variables, which may have passwords."""
    processors = structlog.processors
    last: list[structlog.types.Processor]
    if sys.stderr.isatty():
        traceback = structlog.dev.plain_traceback
        last = [_printable, structlog.dev.ConsoleRenderer(exception_formatter=traceback)]
    else:
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        last = [processors.ExceptionRenderer(tracebacks), processors.JSONRenderer()]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars, processors.add_log_level,
            processors.TimeStamper(fmt="iso", utc=True), *last,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )  # fmt: skip


def _printable(_: object, __: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
    """Escape control characters. Ids come from outside and must not control the terminal."""
    return {name: shown(text) if isinstance(text, str) else text for name, text in line.items()}


def logger(role: str) -> structlog.stdlib.BoundLogger:
    """A logger whose lines carry the role."""
    bound: structlog.stdlib.BoundLogger = structlog.get_logger().bind(role=role)
    return bound
