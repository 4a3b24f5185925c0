"""The decisions of a server in SQLite. Every change is a new row: nothing is ever replaced or removed.

The file is in WAL mode and each change is synchronised to the disk before it is acknowledged. So neither a killed
process nor a power cut loses what the page has shown as saved.
"""

from __future__ import annotations

import secrets
import sqlite3
import threading
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from wildctc.errors import WildCTCError

# decision: null if the reviewer took it back. replaces: the reviewer's decision before. key: made by the page, so that
# a request that is sent twice is stored once.
_SCHEMA = """
CREATE TABLE IF NOT EXISTS history (
  number INTEGER PRIMARY KEY AUTOINCREMENT,
  key TEXT NOT NULL UNIQUE,
  at TEXT NOT NULL,
  reviewer TEXT NOT NULL,
  id TEXT NOT NULL,
  decision TEXT,
  text TEXT NOT NULL,
  fixed TEXT NOT NULL DEFAULT '',
  reason TEXT NOT NULL DEFAULT '',
  comment TEXT NOT NULL DEFAULT '',
  replaces INTEGER REFERENCES history (number)
);
CREATE INDEX IF NOT EXISTS by_utterance ON history (id, reviewer, number);
CREATE TABLE IF NOT EXISTS settings (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TRIGGER IF NOT EXISTS no_update BEFORE UPDATE ON history BEGIN SELECT RAISE(ABORT, 'history is kept'); END;
CREATE TRIGGER IF NOT EXISTS no_delete BEFORE DELETE ON history BEGIN SELECT RAISE(ABORT, 'history is kept'); END;
"""
_INSERT = """
INSERT OR IGNORE INTO history (key, at, reviewer, id, decision, text, fixed, reason, comment, replaces)
VALUES (:key, :at, :reviewer, :id, :decision, :text, :fixed, :reason, :comment,
  (SELECT max(number) FROM history WHERE id = :id AND reviewer = :reviewer))
"""
_LATEST = "SELECT * FROM history WHERE number IN (SELECT max(number) FROM history GROUP BY id, reviewer)"
_HEADER = b"SQLite format 3\x00"


class DecisionStore:
    """The history of all decisions on a report. Use it from any thread."""

    def __init__(self, path: str | Path, read_only: bool = False) -> None:
        """Open the store, or make it.

        Args:
            path: The file.
            read_only: Whether it must exist, and is only read.
        """
        self.path = Path(path)
        self._lock = threading.Lock()
        # a server may write to the file in the meantime; readers wait for it
        address = f"{self.path.resolve().as_uri()}{'?mode=ro' if read_only else ''}"
        try:
            self._db = sqlite3.connect(address, uri=True, timeout=30, check_same_thread=False, isolation_level=None)
            self._db.row_factory = sqlite3.Row
            if not read_only:
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = FULL")
                self._db.executescript(_SCHEMA)
            self._db.execute("SELECT count(*) FROM (SELECT 1 FROM history LIMIT 1)")
        except sqlite3.Error as error:
            raise WildCTCError(f"{self.path}: not a store of decisions, or not writable: {error}") from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def add(self, entries: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
        """Append changes. When this returns, they are on the disk.

        Args:
            entries: Of each change its key, reviewer, id, decision (None: taken back), text, fixed, reason, comment.

        Returns:
            The rows as they are stored. If a key is known already, its old row.
        """
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        rows = []
        with self._lock:
            self._db.execute("BEGIN IMMEDIATE")
            try:
                for entry in entries:
                    self._db.execute(_INSERT, {"fixed": "", "reason": "", "comment": "", **entry, "at": now})
                    rows.append(self._db.execute("SELECT * FROM history WHERE key = ?", (entry["key"],)).fetchone())
                self._db.execute("COMMIT")
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
        return [dict(row) for row in rows]

    def latest(self) -> tuple[int, list[dict[str, Any]]]:
        """Find the last row of each reviewer on each utterance.

        Returns:
            The number of the last row of all, and the rows in the order in which they were made.
        """
        with self._lock:
            rows = self._db.execute(f"{_LATEST} ORDER BY number").fetchall()
        return rows[-1]["number"] if rows else 0, [dict(row) for row in rows]

    def since(self, number: int) -> tuple[int, list[dict[str, Any]]]:
        """Find what was added after a row.

        Args:
            number: The number of the row; 0 for everything.

        Returns:
            The number of the last row, and the rows.
        """
        with self._lock:
            rows = self._db.execute("SELECT * FROM history WHERE number > ? ORDER BY number", (number,)).fetchall()
        return rows[-1]["number"] if rows else number, [dict(row) for row in rows]

    def token(self) -> str:
        """Find the secret part of the server's address.

        Returns:
            The token; the same each time, so that open pages go on after a restart.
        """
        with self._lock:
            made = ("token", secrets.token_urlsafe(24))
            self._db.execute("INSERT OR IGNORE INTO settings VALUES (?, ?)", made)
            return str(self._db.execute("SELECT value FROM settings WHERE name = 'token'").fetchone()[0])


def is_store(path: str | Path) -> bool:
    """Tell a store from a file of JSON lines.

    Args:
        path: A file, which need not exist.

    Returns:
        Whether it is an SQLite file.
    """
    try:
        with open(path, "rb") as file:
            return file.read(len(_HEADER)) == _HEADER
    except OSError:
        return False
