"""Turns what SQLAlchemy and its drivers raise into our errors, so that nobody outside has to know them."""

from collections.abc import Iterator
from contextlib import contextmanager

from sqlalchemy.exc import DataError, DBAPIError, IntegrityError, ProgrammingError, SQLAlchemyError

from gateway.store.errors import DuplicateRow, RowRefused, StoreConfigError, StoreError, StoreUnavailable

_LOGIN = ("28", "3D")  # SQLSTATE classes: invalid authorization, no such database
_REFUSED = ("22", "23")  # data exception, integrity constraint violation
_UNIQUE = "23505"


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except StoreError:
        raise
    except SQLAlchemyError as error:
        raise _translate(error) from error
    except (OSError, TimeoutError) as error:  # asyncpg lets the socket's own errors through while it connects
        raise StoreUnavailable(f"the database can't be reached: {error}") from error
    except (UnicodeEncodeError, OverflowError) as error:  # sqlite3 checks values before it is asked anything
        raise RowRefused(str(error)) from error
    except Exception as error:
        if type(error).__module__.partition(".")[0] == "asyncpg":
            raise _by_sqlstate(error) from error
        raise


def _translate(error: SQLAlchemyError) -> StoreError:
    if not isinstance(error, DBAPIError):
        return StoreUnavailable(str(error))
    cause = error.orig
    if isinstance(error, IntegrityError):
        text = str(cause)
        unique = "UNIQUE constraint" in text or _sqlstate(cause) == _UNIQUE
        return DuplicateRow(text) if unique else RowRefused(text)
    if _sqlstate(cause):
        return _by_sqlstate(cause)
    refused = isinstance(error, ProgrammingError | DataError)
    if refused or any("DataError" in kind.__name__ or kind is OverflowError for kind in _kinds(cause)):
        return RowRefused(str(cause))
    return StoreUnavailable(f"the database does not answer: {cause}")


def _by_sqlstate(error: BaseException | None) -> StoreError:
    state = _sqlstate(error)
    if state[:2] in _LOGIN:
        return StoreConfigError(f"the database refuses us: {error}")
    if state[:2] in _REFUSED:
        return RowRefused(str(error))
    return StoreUnavailable(f"the database does not answer: {error}")


def _sqlstate(error: BaseException | None) -> str:
    return str(getattr(error, "sqlstate", None) or "")


def _kinds(error: BaseException | None) -> Iterator[type]:
    while error is not None:
        yield from type(error).__mro__
        error = error.__cause__
