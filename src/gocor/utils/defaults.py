"""Default values that the command line shows in its help; this module imports nothing, so that the help is quick."""

MODEL = "recurrent-gocor"  # network of `gocor.match` and `gocor match`
MAX_SIZE = 1664  # pixels: larger images are shrunk to this longer side before a network matches them
