"""What is raised where kernels compute otherwise than they should: light to import."""


class OtherBits(Exception):
    """This machine computes ratings that differ from those of the release's test vector."""
