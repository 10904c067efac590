//! Fault-injecting source, corpus and harness for the tests.
