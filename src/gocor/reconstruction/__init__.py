"""COLMAP models of a folder of photos (`gocor reconstruct`), and panoramas (`gocor panorama`)."""
