"""Tests against real servers; they need more than Python packages of the test extra, and skip without it."""
