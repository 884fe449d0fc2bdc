//! A runner that is hostile, played by a test over a socket.
