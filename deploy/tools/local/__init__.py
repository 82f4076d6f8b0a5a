"""Local Kafka and Redis for the demo, the tests and `make up`, and the set-up that installs them.

Standard library only: these modules run on the system's Python before `.venv` exists.

    setup ──▶ system (Debian packages), python_env (.venv) ──▶ uv, kafka_install (jars) ──▶ stamps
    peers ──▶ setup                     also what `make bench` compares with
    servers, background ──▶ kafka_node, redis_node ──▶ processes (guard) ──▶ tools
    redis_node ──▶ stores               builds of Redis and its relatives, on which tests run
"""
