"""Receivers at run time: sources that take in what pushes, and the supervisor that lands it in a topic of Kafka.

Needs the extra `receivers`.
"""
