"""Where it runs: joining or starting Ray, and how much of it each part of a sweep takes."""
