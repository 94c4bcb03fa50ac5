"""Contracts of the tables that stages hand to each other: Arrow schemas and expectations.

Imports nothing of the project. Great Expectations is imported on the first check only.
"""
