"""What tests of Tidegate, and of pipelines, use: fail points, the ports of the core in memory, and the laws of the ports."""
