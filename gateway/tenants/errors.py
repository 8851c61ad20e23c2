"""What an administrator may get wrong about tenants, teams and keys. A caller's errors are in gateway.errors.

TenantError
├── InvalidName
├── InvalidValue      a number, a range or a list that makes no sense; a ValueError too
├── DuplicateName
├── StillInUse        what is to go has something that depends on it
└── UnknownName
"""


class TenantError(Exception):
    pass


class InvalidName(TenantError):
    pass


class InvalidValue(TenantError, ValueError):
    pass


class DuplicateName(TenantError):
    pass


class StillInUse(TenantError):
    pass


class UnknownName(TenantError):
    pass
