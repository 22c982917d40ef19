"""A picture of the dashboard's main panels, drawn from the answers of a real Prometheus.

    python -m llmservice_testing.dashboard_picture docs/images/dashboard.svg

It plays a story of two minutes with a real API server, the operator and simulated engines, and asks Prometheus what the
dashboard asks. Titles, queries, units, legends and colours are the dashboard's own. Grafana is not needed, nor any library
that draws: the picture is SVG, written here.
"""
