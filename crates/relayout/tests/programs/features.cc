// What clones must not break in C++: exceptions through clones, cleanups, catch by type, rethrow, virtual calls, pointers to members,
// thread-local and static initialisation, backtrace(), and callbacks through a library.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <execinfo.h>
#include <functional>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <unwind.h>
#include <vector>

struct Trace { const char *what; explicit Trace(const char *w) : what(w) { std::printf("+%s ", what); } ~Trace() { std::printf("-%s ", what); } };
struct Base { virtual ~Base() = default; virtual int f(int x) const { return x; } int plain(int x) const { return x + 1; } };
struct Derived : Base { int f(int x) const override { if (x > 3) throw std::out_of_range("too large"); return x * 2; } };
struct Other : virtual Base { int f(int x) const override { return x - 1; } };

__attribute__((noinline)) int thrower(int n) {
  Trace t("thrower");
  if (n % 4 == 0) throw n;
  if (n % 4 == 1) throw std::runtime_error("runtime " + std::to_string(n));
  if (n % 4 == 2) throw std::make_unique<int>(n);
  return n;
}
__attribute__((noinline)) int middle(int n) {
  Trace t("middle");
  try { return thrower(n); }
  catch (const std::runtime_error &e) { std::printf("[%s] ", e.what()); if (n > 4) throw; return -1; }
}
static int frames() {
  void *addresses[64];
  return backtrace(addresses, 64);
}
__attribute__((noinline)) int nested(int n) { volatile int r = n == 0 ? frames() : nested(n - 1); return r; }
struct Late { std::string s; Late() : s("late") {} };
static const Late &late() { static Late l; return l; }
thread_local std::vector<int> local{1, 2, 3};
static int walk(int *count) {
  return _Unwind_Backtrace([](struct _Unwind_Context *c, void *n) {
    if (_Unwind_FindEnclosingFunction((void *)(_Unwind_GetIP(c) - 1)) == nullptr) return _URC_END_OF_STACK;
    ++*(int *)n; return _URC_NO_REASON; }, count);
}

int main(int argc, char **) {
  for (int n = 0; n < 8; n++) {
    try { std::printf("%d\n", middle(n)); }
    catch (int i) { std::printf("int %d\n", i); }
    catch (const std::exception &e) { std::printf("exception %s\n", e.what()); }
    catch (...) { std::printf("something\n"); }
  }
  std::vector<std::unique_ptr<Base>> all;
  all.push_back(std::make_unique<Base>()); all.push_back(std::make_unique<Derived>()); all.push_back(std::make_unique<Other>());
  for (int x : {1, 5}) for (auto &b : all) { try { std::printf("%d ", b->f(x)); } catch (const std::out_of_range &e) { std::printf("%s ", e.what()); } }
  int (Base::*m)(int) const = &Base::f; int (Base::*p)(int) const = &Base::plain;
  std::printf("\n%d %d %d\n", (all[1].get()->*m)(2), (all[0].get()->*p)(2), m == &Base::f);
  std::printf("deeper %d\n", nested(9) - nested(4));
  int count = 0; walk(&count); std::printf("walked %d\n", count > 1);
  std::map<std::string, std::function<int(int)>> ops{{"a", [](int x) { return x + 1; }}, {"b", thrower}};
  try { std::printf("%d ", ops["a"](1)); ops["b"](8); } catch (int i) { std::printf("caught %d\n", i); }
  std::vector<int> v{3, 1, 2};
  try { std::sort(v.begin(), v.end(), [](int a, int b) -> bool { if (a == 1 || b == 1) throw 1.5; return a < b; }); } catch (double d) { std::printf("%g\n", d); }
  std::thread([] { try { thrower(4); } catch (int i) { std::printf("thread %d %zu\n", i, local.size()); } }).join();
  std::printf("%s\n", late().s.c_str());
  if (argc > 1) throw std::logic_error("nobody catches this");
  return 3;
}
