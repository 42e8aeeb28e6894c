"""What the tools that read and change files share: the read table, the file history and the byte-true writer.

Tools share this package and never each other, so that Edit works on what Read saw without knowing Read.
"""

from pegboard_files.history import Change, FileHistory
from pegboard_files.hooks import FileChange
from pegboard_files.views import FileViews, View

__all__ = ["Change", "FileChange", "FileHistory", "FileViews", "View"]
