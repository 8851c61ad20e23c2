"""Responses that outlive their request: stored, found again, continued, and run in the background. Knows no HTTP."""
