"""Logs: one structured line per event, readable on a terminal, JSON otherwise."""

import logging
import sys

import structlog

from stream_rater.contract.events import shown


def configure(level: str = "info") -> None:
    """Log to standard error from now on."""
    terminal = sys.stderr.isatty()
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(_for_people() if terminal else _for_machines()),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping().get(level.upper(), logging.INFO)
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _for_people() -> list[structlog.types.Processor]:
    traceback = structlog.dev.plain_traceback
    return [_printable, structlog.dev.ConsoleRenderer(exception_formatter=traceback)]


def _printable(_: object, __: str, line: structlog.types.EventDict) -> structlog.types.EventDict:
    """Escape control characters. Ids come from outside and must not control the terminal."""
    return {name: shown(text) if isinstance(text, str) else text for name, text in line.items()}


def _for_machines() -> list[structlog.types.Processor]:
    """The processors for JSON lines. Tracebacks omit local variables, which may have passwords."""
    processors = structlog.processors
    tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
    return [processors.ExceptionRenderer(tracebacks), processors.JSONRenderer()]


def logger(role: str) -> structlog.stdlib.BoundLogger:
    """A logger whose lines carry the role."""
    bound: structlog.stdlib.BoundLogger = structlog.get_logger().bind(role=role)
    return bound
