"""The web page of `gocor app`: match two images in a browser, and see why a pixel matches."""
