"""`stream-rater backup`: copies a data file while a process may write to it."""

from pathlib import Path

from stream_rater.adapters.sqlite.names import copying, sync
from stream_rater.adapters.sqlite.reading import data_file
from stream_rater.config.errors import Failed
from stream_rater.runtime.failures import named_failures
from stream_rater.runtime.progress import counted


def backup(path: Path, to: Path) -> str:
    """Copy a data file as it is at one instant to a new file, and check the copy. Returns a line
    about it.

    The copy has its name only once it is whole and on the disk. Raises Failed.
    """
    with named_failures():
        _check_free(to)
        with data_file(str(path)) as file, copying(to) as part:
            file.copy_to(part)
            with data_file(str(part)) as copy:
                if faults := copy.faults():
                    raise Failed(f"{path}: its copy is damaged, so it is, too: {faults[0]}")
                rounds, changes = sum(copy.ends()), sum(copy.changed_ends())
            _check_free(to)
            part.rename(to)
            sync(to.parent)
    return (
        f"{to}: {counted(rounds, 'record')} and {counted(changes, 'rating change')}; `stream-rater "
        f"verify --data {to}` compares its ratings with its rounds"
    )


def _check_free(to: Path) -> None:
    if to.exists():
        raise Failed(f"{to}: there is such a file already: name another one")
