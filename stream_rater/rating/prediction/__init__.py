"""Predictions for future rounds from beliefs: win probabilities, balanced teams, forecasts."""
