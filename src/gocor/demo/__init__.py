"""The demonstration of `gocor demo`: plain correlation and GOCor on a rendered façade full of look-alikes."""
