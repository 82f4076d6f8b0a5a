"""`stream-rater backup`: copies a data file while a process may write to it."""

from contextlib import closing
from pathlib import Path

from stream_rater.config.errors import Failed, named_failures
from stream_rater.config.settings import Settings
from stream_rater.places.file import FilePlace
from stream_rater.runtime.progress import counted


def backup(path: Path, to: Path) -> str:
    """Copy a data file as it is at one instant to a new file, and check the copy. Returns a line
    about it.

    The copy has its name only once it is whole and on the disk. Raises Failed.
    """
    with named_failures():
        _check_free(to)
        with closing(FilePlace(Settings(), path)) as file, file.copied_to(to) as copy:
            if faults := copy.faults():
                raise Failed(f"{path}: its copy is damaged, so it is, too: {faults[0]}")
            rounds, changes = sum(copy.ends()), sum(copy.changed_ends())
            _check_free(to)
    return (
        f"{to}: {counted(rounds, 'record')} and {counted(changes, 'rating change')}; `stream-rater "
        f"verify --data {to}` compares its ratings with its rounds"
    )


def _check_free(to: Path) -> None:
    if to.exists():
        raise Failed(f"{to}: there is such a file already: name another one")
