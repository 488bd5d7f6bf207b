"""What comes after matching: COLMAP models of a folder of photos (`gocor reconstruct`)."""
