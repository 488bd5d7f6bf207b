"""Data: image and flow files in `gocor.data.io`."""
