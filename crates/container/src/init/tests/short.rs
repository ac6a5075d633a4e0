//! Tests call latency: idle guests, with a rehearsed start.

use super::*;

#[tokio::test]
async fn calls_one_after_the_other_each_find_a_guest_that_waits() {
    let container = Container::new().await;
    container.warm().await;
    for number in 0..8 {
        let finished = container.run(&python(&format!("print({number})"))).await;
        ended(&finished, 0, &format!("{number}\n"));
        assert!(finished.warm, "{finished:?}");
    }
}

#[tokio::test]
async fn what_a_guest_has_rehearsed_is_not_to_be_seen() {
    let container = Container::new().await;
    container.warm().await;
    let code = "
print([name for name in globals() if not name.startswith('__')])
import atexit, os, sys, threading
print(sys.argv, __name__, sys.modules['__main__'].__dict__ is globals(), threading.active_count())
print(sorted(os.environ), os.listdir('/proc/self/fd'))
atexit.register(print, 'once')
";
    let finished = container.run(&python(code)).await;
    let expected =
        "[]\n['/code/main.py'] __main__ True 1\n['HOME', 'LANG', 'PATH'] ['0', '1', '2', '3']\nonce\n";
    ended(&finished, 0, expected);
    assert!(finished.warm);
}

#[tokio::test]
async fn threads_are_waited_for() {
    let container = Container::new().await;
    container.warm().await;
    let code = "
import threading
def last():
    threading.main_thread().join()
    print('last')
threading.Thread(target=last).start()
print('first')
";
    ended(&container.run(&python(code)).await, 0, "first\nlast\n");
}
