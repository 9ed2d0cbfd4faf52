"""What tests of Tidegate, and of pipelines, use: fail points, and the ports of the core in memory."""
