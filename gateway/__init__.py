"""HTTP, tenants and money: the room that knows all the others. The flow of a request is in `gateway.pipeline`."""
