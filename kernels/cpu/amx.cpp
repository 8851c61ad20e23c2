// Leave to use AMX tiles. Linux gives it to a process that asks, for all its threads.
#ifdef __AMX_TILE__
#include <sys/syscall.h>
#include <unistd.h>

extern "C" int request_amx() {  // 0: granted
    constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
    return (int)syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA);
}
#endif
