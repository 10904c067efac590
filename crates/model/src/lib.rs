//! Cost model and planner: bandwidth, latency, policies.
