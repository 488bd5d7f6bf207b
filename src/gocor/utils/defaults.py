"""Default values that the command line shows in its help; this module imports nothing, so that the help is quick."""

MODEL = "glunet-gocor"  # the network that matches unless another is asked for
MAX_SIZE = 1664  # pixels: larger images are shrunk to this longer side before a network matches them
