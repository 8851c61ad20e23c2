"""What can go wrong in the books.

LedgerError    the journal can't be opened: no request may be dispatched without one
"""


class LedgerError(Exception):
    pass
