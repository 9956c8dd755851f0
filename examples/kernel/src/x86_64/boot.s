/* PVH: QEMU's -kernel starts an ELF here in 32-bit mode, with hvm_start_info in ebx. */
.section .note.Xen, "a", @note
    .long 4, 4, 18
    .asciz "Xen"
    .long pvh_start

.section .text
.code32
.globl pvh_start
pvh_start:
    cli
    cld
    mov edi, ebx
    mov esp, offset boot_stack_top
    /* 512 GiB, each address itself, in pages of 1 GiB. */
    mov eax, offset page_directories + 3
    mov [page_map], eax
    xor ecx, ecx
1:  mov eax, ecx
    shl eax, 30
    or eax, 0x83
    mov [page_directories + ecx*8], eax
    mov eax, ecx
    shr eax, 2
    mov [page_directories + ecx*8 + 4], eax
    inc ecx
    cmp ecx, 512
    jne 1b
    mov eax, offset page_map
    mov cr3, eax
    mov eax, 0x20
    mov cr4, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x100
    wrmsr
    mov eax, 0x80000011
    mov cr0, eax
    lgdt [gdt_pointer]
    .byte 0xea
    .long long_start
    .word 8
.code64
long_start:
    mov ax, 16
    mov ds, ax
    mov es, ax
    mov ss, ax
    lea rsp, [boot_stack_top]
    mov edi, edi
    call kernel_main
2:  hlt
    jmp 2b

/* Other processors begin here, in 16-bit mode: copied to 0x8000. */
.globl ap_start
.globl ap_start_end
.code16
ap_start:
    cli
    xor ax, ax
    mov ds, ax
    lgdtd [AP_GDT]
    mov eax, 0x20
    mov cr4, eax
    mov eax, [AP_CR3]
    mov cr3, eax
    mov ecx, 0xc0000080
    rdmsr
    or eax, 0x100
    wrmsr
    mov eax, 0x80000011
    mov cr0, eax
    .byte 0x66, 0xea
    .long 0x8000 + ap_long - ap_start
    .word 8
.code64
ap_long:
    mov ax, 16
    mov ds, ax
    mov es, ax
    mov ss, ax
    mov rsp, [0x7ff8]
    mov rdi, [0x7ff0]
    mov rax, offset cpu_main
    call rax
3:  hlt
    jmp 3b
.balign 8
ap_cr3: .long page_map
ap_gdt: .word 23
    .long gdt
ap_start_end:
.set AP_CR3, 0x8000 + ap_cr3 - ap_start
.set AP_GDT, 0x8000 + ap_gdt - ap_start

.balign 8
gdt:
    .quad 0
    .quad 0x00af9a000000ffff
    .quad 0x00cf92000000ffff
gdt_pointer:
    .word 23
    .long gdt

.macro save
    push rax
    push rcx
    push rdx
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
.endm
.macro restore
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rdx
    pop rcx
    pop rax
.endm
/* Every interrupt first looks whether it came inside of a section: then that starts over. */
.macro entry name, handler
.globl \name
\name:
    save
    mov rdi, [rsp + 72]
    call return_address
    mov [rsp + 72], rax
    call \handler
    restore
    iretq
.endm
entry ipi_entry, on_fence_interrupt
entry timer_entry, on_timer_interrupt
/* The trap behind each instruction: its handler looks where it is told to. */
.globl step_entry
step_entry:
    save
    mov rdi, rsp
    call on_step
    restore
    iretq
.globl fault_entry
fault_entry:
    mov rdi, rsp
    and rsp, -16
    call on_fault

/* switch_stacks(old: *mut usize, new: usize) */
.globl switch_stacks
switch_stacks:
    push rbx
    push rbp
    push r12
    push r13
    push r14
    push r15
    mov [rdi], rsp
    mov rsp, rsi
    pop r15
    pop r14
    pop r13
    pop r12
    pop rbp
    pop rbx
    ret

.section .bss
.balign 4096
page_map: .skip 4096
page_directories: .skip 4096
boot_stack: .skip 65536
boot_stack_top:
