"""The demonstration of `gocor demo`: plain correlation and GOCor on a rendered façade whose windows look alike."""
