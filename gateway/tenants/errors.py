"""What an administrator may get wrong about tenants and keys. A caller's errors are in gateway.errors.

TenantError
├── InvalidName
├── DuplicateName
└── UnknownName
"""


class TenantError(Exception):
    pass


class InvalidName(TenantError):
    pass


class DuplicateName(TenantError):
    pass


class UnknownName(TenantError):
    pass
