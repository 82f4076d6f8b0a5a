"""`make image`: deploy/Dockerfile built by a container engine, and what came of it checked.

Standard library only, as in `local`, which installs what is needed.

    image ──▶ base (where no registry is to be reached), pip_settings ──▶ engine
    report                              the table that a command ends with
"""
