"""What can go wrong between us and the database.

StoreError
├── StoreConfigError   a bad URL, a driver that is not installed, a refused login: a person has to act
├── StoreUnavailable   not reachable, locked, full, restarting: trying again may help
└── RowRefused         the database is fine and does not want this row
    └── DuplicateRow   because one with the same key exists
"""


class StoreError(Exception):
    pass


class StoreConfigError(StoreError):
    pass


class StoreUnavailable(StoreError):
    pass


class RowRefused(StoreError):
    pass


class DuplicateRow(RowRefused):
    pass
