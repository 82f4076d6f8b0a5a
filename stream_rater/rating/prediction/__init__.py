"""What beliefs say of rounds to come: chances to win, balance, forecasts."""
