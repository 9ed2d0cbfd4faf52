"""The kinds of sources that are built in."""

from tidegate_receivers.runtime.sources.file import FileSource
from tidegate_receivers.runtime.sources.http import HttpSource
from tidegate_receivers.runtime.sources.lines import SocketSource, TcpServerSource

__all__ = ["FileSource", "HttpSource", "SocketSource", "TcpServerSource"]
