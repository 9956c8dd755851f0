//! The two servers of the examples, with clients that know nothing of them.

#[path = "../examples/echo_server.rs"]
mod echo_server;
#[path = "../examples/file_server.rs"]
mod file_server;
mod support;

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::thread;

use support::{is_whole, pool, ring};
use zonal_uring::Options;

/// Bytes that are different at every place, of a client's own.
fn bytes(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (at * 31 + at / 251 + number * 97) as u8).collect()
}

fn can_be_tried() -> bool {
    ring(&pool(), &Options::new()).is_some()
}

#[test]
fn an_echo_server_gives_each_client_its_bytes_in_order() {
    if !can_be_tried() {
        return;
    }
    // Fewer pages than clients, so that some have to wait for one.
    for (fixed, pages) in [(true, 256), (true, 4), (false, 256), (false, 2)] {
        let pool = pool();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let lens = [0, 1, 4096, 4097, 100_000, 1_000_000, 3, 70_000];
        let clients: Vec<_> = lens
            .into_iter()
            .enumerate()
            .map(|(number, len)| {
                thread::spawn(move || {
                    let mut socket = TcpStream::connect(address).unwrap();
                    let mut writer = socket.try_clone().unwrap();
                    let sent = bytes(number, len);
                    let copy = sent.clone();
                    let sending = thread::spawn(move || {
                        // In odd pieces, with the answers not read yet.
                        for piece in sent.chunks(7001) {
                            writer.write_all(piece).unwrap();
                        }
                        writer.shutdown(Shutdown::Write).unwrap();
                    });
                    let mut got = Vec::new();
                    socket.read_to_end(&mut got).unwrap();
                    sending.join().unwrap();
                    assert!(got == copy, "client {number}: {} of {} bytes", got.len(), copy.len());
                })
            })
            .collect();
        let settings = echo_server::Settings { pages, connections: Some(lens.len()) };
        let options = Options::new().fixed(fixed);
        let echoed = echo_server::serve(listener, &pool, &options, &settings).unwrap();
        clients.into_iter().for_each(|client| client.join().unwrap());
        assert_eq!(echoed, lens.iter().sum::<usize>() as u64);
        assert!(is_whole(&pool));
    }
}

#[test]
fn an_echo_server_survives_clients_that_leave_in_the_middle() {
    if !can_be_tried() {
        return;
    }
    let pool = pool();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let clients: Vec<_> = (0..6)
        .map(|number| {
            thread::spawn(move || {
                let mut socket = TcpStream::connect(address).unwrap();
                let sent = bytes(number, 200_000);
                if number % 2 == 0 {
                    // Never reads, so the server's answer is reset.
                    let _ = socket.write_all(&sent[..100_000]);
                    return;
                }
                socket.write_all(&sent[..1000]).unwrap();
                let mut got = vec![0; 1000];
                socket.read_exact(&mut got).unwrap();
                assert!(got == sent[..1000]);
            })
        })
        .collect();
    let settings = echo_server::Settings { pages: 8, connections: Some(6) };
    echo_server::serve(listener, &pool, &Options::new(), &settings).unwrap();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert!(is_whole(&pool));
}

#[test]
fn a_file_server_sends_files_as_they_are_and_nothing_outside_of_its_folder() {
    if !can_be_tried() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("public");
    std::fs::create_dir_all(root.join("sub")).unwrap();
    std::fs::write(folder.path().join("secret"), "secret").unwrap();
    let lens = [0, 1, 65_535, 65_536, 65_537, 1_000_000];
    for (number, len) in lens.into_iter().enumerate() {
        std::fs::write(root.join(format!("sub/{number}")), bytes(number, len)).unwrap();
    }
    let outside = ["/../secret", "/sub/../../secret", "//etc/passwd", "/sub", "/none", "/", ""];
    for fixed in [true, false] {
        let pool = pool();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let ask = move |request: String| {
            let mut socket = TcpStream::connect(address).unwrap();
            // In two pieces: a request need not arrive at once.
            let (front, back) = request.as_bytes().split_at(request.len() / 2);
            socket.write_all(front).unwrap();
            thread::sleep(std::time::Duration::from_millis(2));
            socket.write_all(back).unwrap();
            let mut got = Vec::new();
            socket.read_to_end(&mut got).unwrap();
            got
        };
        let mut clients = Vec::new();
        for (number, len) in lens.into_iter().enumerate() {
            clients.push(thread::spawn(move || {
                let got = ask(format!("GET /sub/{number} HTTP/1.0\r\nHost: here\r\n\r\n"));
                let head = format!("HTTP/1.0 200 OK\r\nContent-Length: {len}\r\n\r\n");
                assert!(got.starts_with(head.as_bytes()), "{number}");
                assert!(got[head.len()..] == bytes(number, len), "{number}: {}", got.len());
            }));
        }
        for path in outside {
            clients.push(thread::spawn(move || {
                let got = ask(format!("GET {path} HTTP/1.0\r\n\r\n"));
                assert!(got.starts_with(b"HTTP/1.0 404"), "{path}");
            }));
        }
        // One says nothing, one leaves in the middle.
        drop(TcpStream::connect(address).unwrap());
        clients.push(thread::spawn(move || {
            let mut socket = TcpStream::connect(address).unwrap();
            socket.write_all(b"GET /sub/5 HTTP/1.0\r\n\r\n").unwrap();
        }));
        let most = Some(clients.len() + 1);
        let options = Options::new().fixed(fixed);
        file_server::serve(listener, &root, &pool, &options, most).unwrap();
        clients.into_iter().for_each(|client| client.join().unwrap());
        assert!(is_whole(&pool));
    }
}
