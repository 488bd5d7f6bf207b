"""What `gocor doctor` reports: facts about the installation, and checks that it works."""
