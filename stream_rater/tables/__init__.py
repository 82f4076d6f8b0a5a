"""Reads tables (CSV, Parquet, data frames) as rounds, results, ratings and seeds."""
