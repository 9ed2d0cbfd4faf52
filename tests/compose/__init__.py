"""docker-compose.yml, run by Docker: `make compose-test`."""
