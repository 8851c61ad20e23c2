"""The tables of files and batches, beside those of `tables` and `budget_tables`."""

from sqlalchemy import BigInteger, Boolean, Column, Integer, LargeBinary, String, Table, Text

from gateway.store.budget_tables import metadata  # with all the others
from gateway.store.tables import UtcDateTime

__all__ = ["batch_results", "batches", "file_parts", "files", "metadata"]

files = Table(
    "files",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant_id", String(32), nullable=False, index=True),
    Column("filename", Text, nullable=False),
    Column("purpose", String(32), nullable=False),
    Column("num_bytes", BigInteger, nullable=False),  # so far, while it is being written
    Column("whole", Boolean, nullable=False),  # all its parts are here; until then nobody sees it
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, index=True),
)

file_parts = Table(  # a file's bytes, cut where it suits us
    "file_parts",
    metadata,
    Column("file_id", String(64), primary_key=True),
    Column("part", Integer, primary_key=True, autoincrement=False),  # 0, 1, ...
    Column("data", LargeBinary, nullable=False),
)

batches = Table(
    "batches",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant_id", String(32), nullable=False, index=True),
    Column("key_id", String(32), nullable=False),  # in whose name its lines are asked
    Column("endpoint", Text, nullable=False),  # "/v1/chat/completions"
    Column("input_file_id", String(64), nullable=False),
    Column("output_file_id", String(64)),
    Column("error_file_id", String(64)),
    Column("status", String(16), nullable=False, index=True),
    Column("errors", Text),  # JSON: what is wrong with the input file
    Column("metadata", Text),  # JSON, the client's
    Column("output_ttl_s", BigInteger),  # how long its output files live
    Column("num_lines", BigInteger, nullable=False),
    Column("num_completed", BigInteger, nullable=False),
    Column("num_failed", BigInteger, nullable=False),
    Column("created_at", UtcDateTime, nullable=False),
    Column("expires_at", UtcDateTime, nullable=False),
    Column("in_progress_at", UtcDateTime),
    Column("finalizing_at", UtcDateTime),
    Column("cancelling_at", UtcDateTime),
    Column("ended_at", UtcDateTime),
    Column("lease_owner", String(32)),  # the gateway that runs it, alive until lease_until
    Column("lease_until", UtcDateTime),
)

batch_results = Table(  # of lines that are answered, until they are written into the batch's files
    "batch_results",
    metadata,
    Column("batch_id", String(64), primary_key=True),
    Column("line", Integer, primary_key=True, autoincrement=False),  # of the input file, from 1
    Column("ok", Boolean, nullable=False),
    Column("answer", LargeBinary, nullable=False),  # a line of the output or of the error file
)
