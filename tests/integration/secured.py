"""Kafka and Redis with TLS, passwords and users with limited rights. The broker has a second
listener without TLS, for itself and for the test, where everything is allowed."""

import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import trustme
from confluent_kafka import admin
from confluent_kafka.admin import AdminClient
from cryptography.hazmat.primitives import serialization

from local.kafka_node import java_command, random_id, render_properties, start_kafka
from local.processes import LOOPBACK, Server, free_port
from local.redis_node import start_redis
from local.tools import find_java
from stream_rater.adapters.access import CLIENT_LOGGER
from stream_rater.config.settings import Settings
from tests.integration.processes import wait_until
from tests.waits import STILL_S

SLOTS = 16_384
DATABASES = 800
USERS = tuple(f"user-{number}" for number in range(30))
"""Users who log in by SCRAM, the default. Each costs some milliseconds of the broker's start."""
CALLERS = tuple(f"caller{number}" for number in range(400))
"""Users who log in by PLAIN, which costs the start nothing."""
ADMIN = "admin"
MECHANISM = "SCRAM-SHA-512"


def password_of(user: str) -> str:
    """The user's password, which is easy to find where it must not appear."""
    return f"SECRET-of-{user}-f00d"


@dataclass(frozen=True)
class Certificates:
    """PEM files: the certificate authority, and the servers' certificate and key."""

    authority: Path
    certificate: Path
    key: Path
    both: Path  # Both the key and the certificate, as Kafka needs them.


def make_certificates(folder: Path) -> Certificates:
    authority = trustme.CA()
    issued = authority.issue_cert(LOOPBACK, "localhost")
    made = Certificates(*(folder / f"{name}.pem" for name in ("ca", "certificate", "key", "both")))
    chain = b"".join(each.bytes() for each in issued.cert_chain_pems)
    private = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    key = private.private_bytes(pem, pkcs8, serialization.NoEncryption())
    authority.cert_pem.write_to_path(str(made.authority))
    made.certificate.write_bytes(chain)
    made.key.write_bytes(key)
    made.both.write_bytes(key + chain)
    return made


@dataclass(frozen=True)
class Acl:
    """A right in Kafka: an operation on a topic, a group or transactional ids."""

    kind: str  # TOPIC, GROUP or TRANSACTIONAL_ID.
    name: str
    operation: str
    prefixed: bool = False

    def __str__(self) -> str:
        return f"{self.operation} {self.kind} {self.name}{'*' * self.prefixed}"

    def binding(self, user: str) -> admin.AclBinding:
        patterns = admin.ResourcePatternType
        pattern = patterns.PREFIXED if self.prefixed else patterns.LITERAL
        return admin.AclBinding(
            admin.ResourceType[self.kind], self.name, pattern, f"User:{user}", "*",
            admin.AclOperation[self.operation], admin.AclPermissionType.ALLOW,
        )  # fmt: skip


EVERY: Any = None
ANY_ACL = admin.AclBindingFilter(
    admin.ResourceType.ANY, EVERY, admin.ResourcePatternType.ANY, EVERY, EVERY,
    admin.AclOperation.ANY, admin.AclPermissionType.ANY,
)  # fmt: skip


class SecuredKafka:
    """A broker with users, and a client that grants rights."""

    def __init__(self, server: Server, secured_port: int) -> None:
        self.open = server.address
        self.secured = f"{LOOPBACK}:{secured_port}"
        self.admin = AdminClient({"bootstrap.servers": self.open}, logger=CLIENT_LOGGER)
        """A client that may do everything."""

    def allow(self, rights: Mapping[str, Sequence[Acl]]) -> None:
        """Grant rights to users, and wait until the broker knows them."""
        named = [(user, each) for user, acls in rights.items() for each in dict.fromkeys(acls)]
        wanted = [each.binding(user) for user, each in named]
        if not wanted:
            return
        for future in self.admin.create_acls(wanted).values():
            future.result(STILL_S)

        def hold() -> bool:
            found = self.admin.describe_acls(ANY_ACL).result(STILL_S)
            return {*wanted} <= {*found}

        wait_until(hold, "the rights hold")


@contextmanager
def secured_kafka(folder: Path, certificates: Certificates) -> Iterator[SecuredKafka]:
    """A KRaft node whose users were created when it was formatted."""
    java = find_java()
    assert java is not None, "run `make setup`"
    port, secured_port, controller_port = free_port(), free_port(), free_port()
    broker, secured = f"BROKER://{LOOPBACK}:{port}", f"SECURED://{LOOPBACK}:{secured_port}"
    controller = f"{LOOPBACK}:{controller_port}"
    callers = " ".join(f'user_{each}="{password_of(each)}"' for each in CALLERS)
    security = "org.apache.kafka.common.security"
    properties = {
        "listeners": f"{broker},{secured},CONTROLLER://{controller}",
        "advertised.listeners": f"{broker},{secured}",
        "controller.quorum.voters": f"1@{controller}",
        "listener.security.protocol.map": (
            "BROKER:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL"
        ),
        "sasl.enabled.mechanisms": f"{MECHANISM},PLAIN",
        f"listener.name.secured.{MECHANISM.lower()}.sasl.jaas.config": (
            f"{security}.scram.ScramLoginModule required;"
        ),
        "listener.name.secured.plain.sasl.jaas.config": (
            f"{security}.plain.PlainLoginModule required {callers};"
        ),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.both),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",
        "allow.everyone.if.no.acl.found": "false",
    }
    data = folder.resolve() / "data"
    configuration = folder / "format.properties"
    configuration.write_text(render_properties(data, port, controller_port, properties))
    scram = (
        word
        for user in USERS
        for word in ("--add-scram", f"{MECHANISM}=[name={user},password={password_of(user)}]")
    )
    subprocess.run(
        java_command(
            java, "kafka.tools.StorageTool", "format", "--cluster-id", random_id(),
            "--config", str(configuration), *scram,
        ),
        check=True, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    with start_kafka(folder, port=port, properties=properties) as server:
        yield SecuredKafka(server, secured_port)
        server.kill()  # a clean stop would write hundreds of topics to the disk


COPY = """
redis.call('SELECT', ARGV[1])
for _, key in ipairs(redis.call('KEYS', '*')) do
  redis.call('COPY', key, key, 'DB', ARGV[2])
end
"""
PUT = """
redis.call('SELECT', ARGV[1])
redis.call('HSET', ARGV[2], ARGV[3], ARGV[4])
"""


class SecuredRedis:
    """A server with TLS and users, and a client that grants rights."""

    def __init__(self, port: int, certificates: Certificates) -> None:
        self.url = f"rediss://{LOOPBACK}:{port}"
        self.client: redis.Redis = redis.Redis(
            host=LOOPBACK, port=port, username=ADMIN, password=password_of(ADMIN),
            ssl=True, ssl_ca_certs=str(certificates.authority),
        )  # fmt: skip

    def allow(self, user: str, *rules: str) -> None:
        """Give a user exactly these rights, as in an ACL file, and the password."""
        rules_ = ("reset", "on", f">{password_of(user)}", *rules)
        self.client.execute_command("ACL", "SETUSER", user, *rules_)

    def copy(self, database: int, to: int) -> None:
        self.client.eval(COPY, 0, database, to)

    def put(self, database: int, key: str, name: str, value: str | bytes) -> None:
        self.client.eval(PUT, 0, database, key, name, value)

    def empty(self) -> None:
        self.client.flushall()
        self.client.function_flush()


@contextmanager
def secured_redis(
    folder: Path, certificates: Certificates, settings: Mapping[str, str] = {}
) -> Iterator[SecuredRedis]:
    """A server with TLS only, and an ACL file in which the default user is off."""
    folder.mkdir(parents=True)
    users = folder / "users.acl"
    users.write_text(f"user default off\nuser {ADMIN} on >{password_of(ADMIN)} ~* &* +@all\n")
    port = free_port()
    own = {
        "port": "0", "tls-port": str(port), "tls-cert-file": str(certificates.certificate),
        "tls-key-file": str(certificates.key), "tls-ca-cert-file": str(certificates.authority),
        "tls-auth-clients": "no", "aclfile": str(users), "databases": str(DATABASES), **settings,
    }  # fmt: skip
    trusting = ssl.create_default_context(cafile=str(certificates.authority))
    with start_redis(folder, port=port, settings=own, tls=trusting):
        yield SecuredRedis(port, certificates)


@dataclass(frozen=True)
class SecuredCluster:
    nodes: Sequence[SecuredRedis]

    @property
    def address(self) -> str:
        first, *others = (node.url for node in self.nodes)
        return ",".join([first, *(url.removeprefix("rediss://") for url in others)])

    def allow(self, user: str, *rules: str) -> None:
        """Grant rights on each node, because nodes do not share them."""
        for node in self.nodes:
            node.allow(user, *rules)


@contextmanager
def secured_cluster(folder: Path, certificates: Certificates) -> Iterator[SecuredCluster]:
    """Two masters that share the slots, with TLS between them, too."""
    with ExitStack() as stack:
        nodes, buses = [], [free_port(), free_port()]
        for i, bus in enumerate(buses):
            settings = {
                "cluster-enabled": "yes", "tls-cluster": "yes", "cluster-port": str(bus),
                "databases": "1",
            }  # fmt: skip
            node = secured_redis(folder / str(i), certificates, settings)
            nodes.append(stack.enter_context(node))
        first, second = (node.client for node in nodes)
        for i, client in enumerate((first, second)):
            slots = i * SLOTS // 2, (i + 1) * SLOTS // 2 - 1
            client.execute_command("CLUSTER ADDSLOTSRANGE", *slots)
            client.execute_command("CLUSTER SET-CONFIG-EPOCH", i + 1)
        port = int(nodes[1].url.rpartition(":")[2])
        first.execute_command("CLUSTER MEET", LOOPBACK, port, buses[1])
        wait_until(
            lambda: all(
                node.client.execute_command("CLUSTER INFO")["cluster_state"] == "ok"
                for node in nodes
            ),
            "the nodes have met",
        )
        yield SecuredCluster(nodes)


def settings_of(
    user: str, kafka: SecuredKafka, redis_: SecuredRedis, certificates: Certificates,
    prefix: str, database: int,
) -> Settings:  # fmt: skip
    return Settings(
        kafka=kafka.secured, kafka_security_protocol="SASL_SSL",
        kafka_sasl_mechanism="PLAIN" if user in CALLERS else MECHANISM, kafka_sasl_username=user,
        kafka_sasl_password=password_of(user), kafka_ssl_ca=str(certificates.authority),
        redis=f"{redis_.url}/{database}", redis_username=user, redis_password=password_of(user),
        redis_ca=str(certificates.authority), topic_prefix=prefix, http="127.0.0.1:0",
        serve="127.0.0.1:0", partitions=1, shards=1, buckets=4,
    )  # fmt: skip
