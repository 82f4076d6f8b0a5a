"""A store that the log does not lead to, on real servers: nobody rates by it, and the way out that
is said works."""

from functools import partial

import pytest

from stream_rater.adapters.kafka.topics import Admin, Topics
from stream_rater.adapters.redis.client import connect
from stream_rater.config.settings import Settings
from tests import real
from tests.integration.erasing import Start, season, stopped
from tests.integration.processes import WorkerProcess, wait_until
from tests.integration.test_corrections import rated, verified
from tests.integration.test_rebuild import rebuild
from tests.integration.topics import produce

MU = 21
"""Where mu begins in a record."""


def make_foreign(at: Settings, *, ahead: bool) -> set[int]:
    """Let each belief be another one, and each position that of a later call, or of another record
    at the same place. Returns the shards that have any."""
    shards = set()
    with connect(at) as client:
        for key in [*client.scan_iter(match="{*}:belief:?*:*")]:
            for player, data in client.hgetall(key).items():
                other = data[:MU] + bytes([data[MU] ^ 1]) + data[MU + 1 :]
                client.hset(key, player, other)
        for key in [*client.scan_iter(match="{*}:position")]:
            applied = int(client.hget(key, "applied"))
            if not applied:
                continue
            shards.add(int(key[1 : key.index(b"}")]))
            if ahead:
                client.hset(key, mapping={"applied": applied + 1, "start": applied})
            else:
                of, _, checksum = client.hget(key, "tail").partition(b":")
                assert int(of) == applied
                client.hset(key, "tail", b"%d:%d" % (applied, int(checksum) ^ 1))
    return shards


def all_are_refused(worker: WorkerProcess, role: str, shards: set[int]) -> bool:
    """Whether a role has refused exactly these shards."""
    return refusing(worker, role) == shards


def refusing(worker: WorkerProcess, role: str) -> set[int]:
    """The shards that a role has refused, with the one advice."""
    found = [each for each in worker.events("shard refused") if each["role"] == role]
    assert all("rebuild --replace" in each["reason"] for each in found)
    assert not any("ommit" in each["reason"] for each in found)
    return {each["shard"] for each in found}


@pytest.mark.parametrize("ahead", [pytest.param(True, marks=pytest.mark.slow), False])
def test_a_store_of_another_history_is_not_rated_by(
    settings: real.SettingsFactory, worker_process: Start, ahead: bool
) -> None:
    """No part is computed from its beliefs, though rounds wait. After the rebuild that each line
    asks for, all is equal the first time."""
    at = settings()
    worker = worker_process(at)
    rated(at, *season(0, 24))
    stopped(worker)
    shards = make_foreign(at, ahead=ahead)
    admin, parts = Admin(at), Topics.of(at).parts
    ends = admin.all_ends(parts)
    produce(at, [*season(100, 8)])
    worker = worker_process(at, ready=False)
    for role in ("estimator", "updater"):
        wait_until(
            partial(all_are_refused, worker, role, shards), f"{role}: refused",
            moves=worker.moves,
        )  # fmt: skip
    stopped(worker)
    assert [admin.all_ends(parts)[shard] for shard in shards] == [ends[shard] for shard in shards]
    done = rebuild(at, "--replace")
    assert done.returncode == 0, done.stderr
    worker = worker_process(at)
    rated(at, *season(200, 4))
    verified(at)
    stopped(worker)
