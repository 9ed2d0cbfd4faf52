"""What tests of Tidegate, and of pipelines, use: fail points."""
