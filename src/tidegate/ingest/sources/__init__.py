"""The kinds of sources that are built in."""

from tidegate.ingest.sources.file import FileSource
from tidegate.ingest.sources.http import HttpSource
from tidegate.ingest.sources.socket import SocketSource
from tidegate.ingest.sources.tcp_server import TcpServerSource

__all__ = ["FileSource", "HttpSource", "SocketSource", "TcpServerSource"]
