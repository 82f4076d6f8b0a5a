"""`make image`, `make compose`, `make kubernetes`: our image and our chart on real engines.

__main__ ──▶ image, compose, cluster.run ──▶ report      the table that each ends with
image ──▶ base (where no registry is to be reached), pip_settings ──▶ engine
arm64 ──▶ bits, cross (kernels for arm64)         the same bits on an emulated processor
compose ──▶ servers (images of Kafka, Redis, Prometheus), load ──▶ engine
"""
