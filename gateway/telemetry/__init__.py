"""What a gateway tells its operator: metrics and log lines. Observes records; changes nothing."""
