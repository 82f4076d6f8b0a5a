"""A worker that reaches one of its two servers, while another worker reaches both."""

import time
from functools import partial
from itertools import product
from pathlib import Path

import msgspec

from tests.brokers import behind_a_proxy
from tests.chaos.scene import AT_ONCE, Outcome, a_scene
from tests.proxy import ANSWERS, DIRECTIONS, REDIS, REQUESTS, ROUTES, Toxic, a_proxy

SILENT: Toxic = {"type": "timeout", "attributes": {"timeout": 0}}
"""Connections stay open, and nothing comes through."""
CUTS = tuple(product((DIRECTIONS, (ANSWERS,), (REQUESTS,)), ROUTES))
"""What does not come through, and to which server."""
CUT_S = 5.0
"""Longer than a session, so that the other worker takes over what the cut one had."""


def one_sided(name: str, folder: Path, quick: bool) -> Outcome:
    """Cut one of two workers off from Kafka, or from Redis, in one direction or in both. It goes on
    with what it reaches, while the other worker takes its place."""
    with a_proxy(folder) as proxy:
        kafka = partial(behind_a_proxy, proxy=proxy)
        with a_scene(name, folder, quick, workers=0, kafka=kafka) as scene:
            proxy.lead(REDIS, scene.redis.address)
            ways = {route: proxy.address(route) for route in ROUTES}
            free, behind = scene.settings, msgspec.structs.replace(scene.settings, **ways)
            scene.crew.settings = behind
            scene.crew.hire(1)
            scene.crew.settings = free
            other = scene.crew.add("worker-free")
            other.wait_ready()
            for i in scene.faults(len(CUTS)):
                directions, route = CUTS[i]
                proxy.spoil(route, SILENT, directions)
                scene.season.play(AT_ONCE)
                time.sleep(CUT_S)  # the fault itself
                scene.season.play(AT_ONCE // 4)
                proxy.mend()
            return scene.outcome()
