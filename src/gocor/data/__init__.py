"""Files in `gocor.data.io`, synthetic training pairs in `gocor.data.synthetic`, data sets in `gocor.data.datasets`."""
